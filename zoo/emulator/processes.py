"""Pieces of work that do not touch each other, on several processes."""

import multiprocessing


def results(work, items, jobs):
    """[work(*item) for item in items], each process doing a share of the items."""
    jobs = min(jobs, len(items))
    if jobs < 2:
        return [work(*item) for item in items]
    context = multiprocessing.get_context("fork")  # `work` may hold modules of PTX, which no other process could be sent
    started = []
    for first in range(jobs):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_send, args=(work, items[first::jobs], sender))
        process.start()
        sender.close()
        started.append((process, receiver))
    found = [None] * len(items)
    for first, (process, receiver) in enumerate(started):
        try:
            found[first::jobs] = receiver.recv()
        except EOFError:  # it failed, and the item fails here as well
            found[first::jobs] = [work(*item) for item in items[first::jobs]]
        process.join()
    return found


def _send(work, items, sender):
    try:
        found = [work(*item) for item in items]
    except Exception:
        return  # without an answer
    sender.send(found)
