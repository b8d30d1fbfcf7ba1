"""Conformance suites for your own parts. The shipped parts pass the same checks.

```python
from syncline.testing import check_codec, check_sync_model

def test_my_model():
    check_sync_model(Patient(3), bound=3)

def test_my_codec():
    check_codec(Halves())
```
"""

from syncline.testing.codecs import check_codec
from syncline.testing.sync_models import check_sync_model

__all__ = ["check_codec", "check_sync_model"]
