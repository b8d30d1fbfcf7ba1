"""Settings as text: an error names the setting."""

from __future__ import annotations

import pytest

from syncline.errors import UsageError
from syncline.layout import VALUE_BYTES
from syncline.messages import PAYLOAD
from syncline.strategies.settings import defaults, settle, strategy_of


def test_a_bucket_is_at_most_what_a_frame_carries() -> None:
    assert strategy_of({**defaults(), "bucket": f"{PAYLOAD}B"}, 1).bucket_values == PAYLOAD // VALUE_BYTES
    for refuse in (
        lambda: strategy_of({**defaults(), "bucket": f"{PAYLOAD + 1}B"}, 1),
        lambda: settle({"the command line": {"bucket": "2GiB"}}, 1, 1),
    ):
        with pytest.raises(UsageError, match="at most 1GiB") as refused:
            refuse()
        assert refused.value.option == "bucket"


@pytest.mark.parametrize(("rule", "mode", "sync"), [("add", "changes", "asp"), ("mean", "gradients", "bsp")])
def test_the_rule_of_a_mode_selects_that_mode(rule: str, mode: str, sync: str) -> None:
    found = settle({"the command line": {"rule": rule, "sync": sync}}, 1, 2)
    assert {key: found[key][0] for key in ("rule", "mode")} == {"rule": rule, "mode": mode}
