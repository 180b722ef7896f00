from itertools import product

from stages.envs.adapters.key import seed_of


def test_the_same_key_gives_the_same_seed_and_another_key_another():
    keys = list(product(range(4), repeat=4))
    seeds = [seed_of(key) for key in keys]
    assert seeds == [seed_of(key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= seed < 2**31 for seed in seeds)
