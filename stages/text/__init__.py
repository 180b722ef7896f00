"""Tokenizers, chat renderings by token ids, tool-call parsing, and demonstrations as token episodes."""
