import pytest
from pydantic import ValidationError

from stages.models.config import ModelConfig

SIZES = {"vocab_size": 8, "width": 8, "num_layers": 1, "num_heads": 4, "num_kv_heads": 2, "head_size": 4, "mlp_width": 8}


def test_query_heads_must_divide_among_the_key_heads():
    with pytest.raises(ValidationError, match=r"got num_heads=4, num_kv_heads=3; change one"):
        ModelConfig(**{**SIZES, "num_kv_heads": 3}, context_length=8)


def test_odd_head_size_is_refused():
    with pytest.raises(ValidationError, match=r"even head_size.*got 5"):
        ModelConfig(**{**SIZES, "head_size": 5}, context_length=8)


def test_unknown_key_is_refused():
    """S105."""
    with pytest.raises(ValidationError, match="num_head\n"):
        ModelConfig(**SIZES, context_length=8, num_head=4)
