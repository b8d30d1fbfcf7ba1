"""Which parts a text from another process may name."""

from __future__ import annotations

import pytest

from syncline.errors import UsageError
from syncline.strategies.allowed_parts import EVERY_PART, AllowedParts, listed

OWN = {"sync": "mine.models.Patient:3", "codec": "dense"}


@pytest.mark.parametrize("modules", ["mine", "mine.models", "other,mine.models", EVERY_PART])
def test_parts_that_are_allowed(modules: str) -> None:
    AllowedParts(modules).check(OWN)


@pytest.mark.parametrize("modules", ["", "other", "mine.mod", "mine.models.Patient.x", "min"])
def test_parts_that_are_not_allowed(modules: str) -> None:
    with pytest.raises(UsageError) as caught:
        AllowedParts(modules).check(OWN)
    assert caught.value.option == "sync"
    assert caught.value.problem.endswith("to load it here, use --allow-parts mine.models")


def test_what_is_shipped_is_always_allowed() -> None:
    AllowedParts().check({"sync": "bsp ssp:3", "codec": "by_size:1000,large=[topk:ratio=0.01]", "bucket": "1.5MiB"})


def test_a_part_that_the_own_program_names_is_allowed() -> None:
    AllowedParts().check(OWN, {"sync": "mine.models.Patient:s=4"})
    with pytest.raises(UsageError):
        AllowedParts().check(OWN, {"sync": "mine.models.Other"})


def test_the_option_names_modules() -> None:
    assert listed(None) == ""
    assert listed(["mine", "other.models"]) == "mine,other.models"
    for wrong in ("", "a b", "mine.", "../x", "mine,other", "*"):
        with pytest.raises(UsageError, match="--allow-parts"):
            listed([wrong])
