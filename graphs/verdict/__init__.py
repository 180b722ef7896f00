"""A verdict in the words of reinforcement learning: ``advice``, what to try next; ``text``, for people; ``compared``."""
