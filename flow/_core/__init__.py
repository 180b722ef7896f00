"""Transitions without I/O: plain objects and synchronous methods. Nothing here awaits, sleeps, or knows asyncio."""
