"""A lost bucket at the server that holds it from now on. Workers have what the dead server had; this restores it.

1. The view that follows the death of a server names the buckets that are lost, and the server that restores each.
   What is lost is what the dead server held, and what was on its way from it or to it.
2. A worker that adopts this view reports, for each lost bucket, the version and V of its copy, and `next`, the first
   iteration that is not answered. Then it sends its unanswered push or pull of the bucket again. The new request has
   the number of the new view, so an answer of an earlier view does not count any more.
3. The new holder waits for the reports of all members that have a first iteration. It asks the worker with the freshest
   copy for it: the largest version, then the largest V. If this worker is gone, it asks the next one.
4. The copy says which updates it contains: of every member all up to V - 1, except of those that it lists.
5. The bucket continues with the V of the copy, and with its version, or a larger one that a worker has read. Member j
   has pushed iteration i if i < next of j, or if the copy contains it. Then the bucket closes the rounds that it may.
6. A push that is sent again and that the copy contains is not applied again. Its pull is judged like any other.
7. A server that still holds a lost bucket, because it has not heard of a move, discards it. A handover of an earlier
   view is ignored. So all members continue from the same copy.
8. If servers hold no parameters (mode `gradients`), the copy is the mean of round V - 1. It is needed only if some
   worker lacks it. Then no later round can have closed, so those that have it have all of it.
9. An update that was answered without parameters, and that no copy contains, is lost. The shard counts these.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from syncline.errors import RunError
from syncline.layout import Bucket, Values
from syncline.messages import BucketCopy, CopyReport
from syncline.nodes.server.bucket import HeldBucket
from syncline.nodes.server.kept_updates import Who
from syncline.nodes.server.shard_terms import ShardTerms

FAR = 1 << 20
"""A report may be at most this many iterations ahead of the V of the copy."""


class Recovery:
    """What the new holder of a lost bucket has heard of it."""

    __slots__ = ("_reports", "asked", "bucket")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.asked: Who | None = None
        """The worker that was asked for its copy."""
        self._reports: dict[Who, CopyReport] = {}

    def report(self, who: Who, report: CopyReport) -> None:
        self._reports[who] = report

    def is_complete(self, terms: ShardTerms) -> bool:
        """Whether all members have reported."""
        return terms.present <= self._reports.keys()

    def freshest(self, terms: ShardTerms) -> Who | None:
        """The member with the freshest copy; None if the bucket continues without one."""
        reports = {who: self._reports[who] for who in terms.present}
        held = {who: each for who, each in reports.items() if each.held}
        found = max(held, key=lambda who: (held[who].version, held[who].v, -who[0]), default=None)
        if terms.keeps:
            if found is None:
                raise RunError(f"no live worker has a complete copy of {self.bucket}, which was lost with its server")
            return found
        last = max((each.v for each in reports.values()), default=0)
        if found is not None and held[found].v == last:
            return found
        if any(each.next < last for each in reports.values()):
            raise RunError(f"no live worker has the mean of round {last - 1} of {self.bucket}, which was lost")
        return None

    def restored(self, copy: BucketCopy | None, values: Values | None, terms: ShardTerms) -> tuple[HeldBucket, int]:
        """The bucket as the members know it, and how many of their answered updates are lost."""
        reports = {who: self._reports[who] for who in terms.present}
        if values is None:
            values = _nothing(self.bucket, terms)
        bucket = HeldBucket(self.bucket, values, terms)
        read = {who: each.version for who, each in reports.items()}
        if copy is None:
            copy = BucketCopy(0, 0, self.bucket, 0, max((each.v for each in reports.values()), default=0))
        if any(each.next > copy.v + FAR for each in reports.values()):
            raise RunError(f"a worker is more than {FAR:,} iterations ahead of its copy of {self.bucket}")
        answered = {who: each.next - 1 for who, each in reports.items()}
        contained = _contained(copy, answered, terms)
        bucket.restore(copy, answered, contained, read)
        return bucket, sum(max(last - contained[who], 0) for who, last in answered.items())


def _nothing(bucket: Bucket, terms: ShardTerms) -> Values:
    """The mean of a bucket of which there is none yet."""
    where = terms.within(bucket, bucket)
    return np.zeros(where.stop - where.start, np.float32)


def _contained(copy: BucketCopy, answered: Mapping[Who, int], terms: ShardTerms) -> dict[Who, int]:
    """The last update of each member that the copy contains; before its first iteration a member has none."""
    listed = {(each.worker, each.incarnation): each.progress for each in copy.seen}
    firsts = {who: (terms.members[who[0]].first or 0) - 1 for who in answered}
    return {who: max(listed.get(who, copy.v - 1), firsts[who]) for who in answered}
