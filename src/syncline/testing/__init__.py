"""Conformance suites for your own parts. The shipped parts pass the same checks.

```python
from syncline.testing import check_codec, check_gate, check_placement, check_rule, check_sync_model

def test_my_model():
    check_sync_model(Patient(3), bound=3)

def test_my_rule():
    check_rule(SignSgd(0.01))
```

Each raises AssertionError and says what is wrong.
"""

from syncline.testing.codecs import check_codec
from syncline.testing.gates import check_gate
from syncline.testing.placements import check_placement
from syncline.testing.rules import check_rule
from syncline.testing.sync_models import check_sync_model

__all__ = ["check_codec", "check_gate", "check_placement", "check_rule", "check_sync_model"]
