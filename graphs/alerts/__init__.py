"""Alerts: rules over metrics, and who is told when one is broken."""
