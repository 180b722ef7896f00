import asyncio
import copy
import json
import pickle

import anyio
import pytest

from stages.tools.credentials import Credentials, RevokedError, Uses, blanked, revocations_in, revoke, uses_into

SECRET = "s3cr3t-7c1f"
KEYS = Credentials({"search": SECRET, "mail": "other"})


def test_no_text_of_credentials_holds_a_secret():
    assert repr(KEYS) == str(KEYS) == "Credentials(mail, search)"
    for spread in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match=r"got Credentials\(mail, search\), in a pickle"):
            spread(KEYS)
    with pytest.raises(TypeError):
        json.dumps(KEYS)


def test_a_tool_has_the_credentials_it_was_handed_and_no_others():
    mine = KEYS.only("search")
    assert mine.get("search") == SECRET
    with pytest.raises(LookupError, match="expected credentials among search; got mail") as refused:
        mine.get("mail")
    assert SECRET not in str(refused.value)
    with pytest.raises(LookupError, match="got calendar, files"):
        KEYS.only("calendar", "search", "files")


def test_they_come_from_environment_variables(monkeypatch):
    monkeypatch.setenv("SEARCH_KEY", SECRET)
    assert Credentials.from_environment(search="SEARCH_KEY").get("search") == SECRET
    with pytest.raises(LookupError, match="got none for NO_KEY_A, NO_KEY_B"):
        Credentials.from_environment(a="NO_KEY_A", search="SEARCH_KEY", b="NO_KEY_B")


def test_they_come_from_a_file_that_only_its_owner_may_read(tmp_path):
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"search": SECRET}))
    file.chmod(0o640)
    with pytest.raises(PermissionError, match="chmod 600"):
        Credentials.from_file(file)
    file.chmod(0o600)
    assert Credentials.from_file(file).get("search") == SECRET
    for broken in (f'["{SECRET}"]', f'{{"search": "{SECRET}"', f'{{"{SECRET}": 3}}'):
        file.write_text(broken)
        with pytest.raises(ValueError, match="got something else") as refused:
            Credentials.from_file(file)
        assert SECRET not in str(refused.value)
        assert refused.value.__context__ is None or SECRET not in repr(refused.value.__context__)


@pytest.mark.parametrize("secrets", [{"../up": "a"}, {"": "a"}, {"search": ""}, {"a/b": "c", "d": ""}])
def test_names_that_are_no_file_names_and_empty_secrets_are_refused(secrets):
    with pytest.raises(ValueError, match="expected names of letters"):
        Credentials(secrets)


def test_a_revoked_credential_is_refused_at_the_next_use(tmp_path):
    with revocations_in(tmp_path):
        assert KEYS.get("search") == SECRET
        revoke(tmp_path, "search")
        with pytest.raises(RevokedError, match="the credential search was revoked"):
            KEYS.get("search")
        assert KEYS.get("mail") == "other"
    with revocations_in(tmp_path / "another run"):
        assert KEYS.get("search") == SECRET


def test_a_use_that_lasts_is_cut_off(tmp_path):
    async def use():
        with revocations_in(tmp_path):
            async with KEYS.held("search") as secret:
                assert secret == SECRET
                revoke(tmp_path, "search")
                await anyio.sleep_forever()

    async def limited():
        async with asyncio.timeout(5):
            await use()

    with pytest.raises(RevokedError):
        asyncio.run(limited())


def test_a_use_that_lasts_ends_like_any_other_block():
    async def use():
        async with KEYS.held("search"):
            raise OSError("no connection")

    async def cancelled():
        async with KEYS.held("search"):
            await anyio.sleep_forever()

    async def run():
        with pytest.raises(OSError, match="no connection"):
            await use()
        task = asyncio.create_task(cancelled())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert asyncio.run(run()) == []


def test_a_name_that_leads_out_of_the_folder_cannot_be_revoked(tmp_path):
    with pytest.raises(ValueError, match=r"got '\.\./x'"):
        revoke(tmp_path, "../x")
    with pytest.raises(NotADirectoryError, match="expected the folder of a run"):
        revoke(tmp_path / "absent", "search")


def test_uses_are_written_down_also_from_threads():
    async def run():
        uses = Uses({})
        with uses_into(uses):
            await anyio.to_thread.run_sync(KEYS.get, "mail")
        KEYS.get("search")
        return uses

    assert asyncio.run(run()) == Uses({"other": "mail"}, {"mail"})


def test_secrets_are_blanked_the_longest_first():
    with uses_into(Uses({"abc": "short", "abcdef": "long"})):
        assert blanked("x abcdef abc") == "x [credential long] [credential short]"
    assert blanked("x abcdef abc") == "x abcdef abc"
