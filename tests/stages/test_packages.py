import json

import pytest

from stages.packages import MissingPackageError, optional_package


def test_a_package_that_is_there_is_imported():
    assert optional_package("json", "nothing", "a test") is json


def test_a_package_that_is_not_there_is_named_with_what_to_install():
    with pytest.raises(MissingPackageError, match=r"in a test; install it with: pip install 'headrace\[lake\]'"):
        optional_package("no_such_package_of_a_lake.deep", "lake", "a test")
