"""Engines that are services: servers over HTTP behind the policy protocol."""
