"""Agents: what asks the policy for turns and keeps the token record of an episode."""
