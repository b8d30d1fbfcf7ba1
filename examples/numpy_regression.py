"""Logistic regression in numpy. Run: syncline run -n 3 --sync ssp:3 examples/numpy_regression.py"""

import numpy as np

import syncline

STEPS, BATCH, RATE = 200, 32, 0.5


def loss(w, b, x, y):
    z = x @ w + b
    return np.mean(np.logaddexp(0, z) - y * z)


session = syncline.connect()
random = np.random.default_rng(session.rank)  # every worker has its own data,
hidden = np.random.default_rng(99).normal(size=20)  # generated from the same hidden weights
x = random.normal(size=(2000, 20))
y = (x @ hidden + random.normal(size=2000) > 0).astype(float)

tables = session.tables({"w": np.zeros(20), "b": np.zeros(1)})  # all workers start with the leader's values
w, b = tables["w"], tables["b"]
before = loss(w, b, x, y)
while session.iteration < STEPS:
    batch = random.choice(len(x), BATCH)
    error = 1 / (1 + np.exp(-(x[batch] @ w + b))) - y[batch]
    change_w = -RATE * x[batch].T @ error / BATCH  # first compute everything,
    change_b = -RATE * error.mean(keepdims=True)
    session.update("w", change_w)  # then send it: from here on w and b may change
    session.update("b", change_b)
    session.clock()
    session.sync()  # wait; now w and b hold the new values
session.close()  # now all workers have the same w and b
print(f"loss {before:.4f} -> {loss(w, b, x, y):.4f}")
