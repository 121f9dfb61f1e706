"""
A model in a UAI file
=====================

Read a model file, ask for marginals, a best labelling and what the evidence changes, and write
the answer.  ``fieldfit infer MODEL.uai`` does the same from the command line.
"""

import tempfile
from pathlib import Path

import numpy as np

import fieldfit as ff
from fieldfit.io import MarginalAnswer

# Two causes of an alarm; the tables are P(burglary), P(earthquake) and P(alarm | both).
ALARM = """\
BAYES
3
2 2 2
3
1 0
1 1
3 0 1 2
2  0.99 0.01
2  0.98 0.02
8  0.999 0.001  0.71 0.29  0.06 0.94  0.05 0.95
"""

# %%
# Evidence is ``{variable: label}``; without a method `infer` is exact if that fits in memory.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "alarm.uai")
    path.write_text(ALARM)
    graph, potentials = ff.read_uai(path)
    print(graph)

    before = ff.infer(graph, potentials)
    after = ff.infer(graph, potentials, observed={2: 1})  # the alarm rings
    print(after.status)
    print(f"log10 of its probability: {after.log_partition / np.log(10):.4f} ({after.bound})")

    best = ff.decode(graph, potentials, observed={2: 1})
    print(f"best labelling: {best.labels}, optimal: {best.optimal}")

    answer = Path(folder, "answer.MAR")
    ff.io.write_answer(answer, MarginalAnswer.from_beliefs(after.beliefs))
    print(answer.read_text())

# %%
# What the alarm says about its causes.

import matplotlib.pyplot as plt

figure, axis = plt.subplots(figsize=(5, 2.6), layout="constrained")
for result, name, offset in ((before, "before", -0.2), (after, "after the alarm", 0.2)):
    chances = [result.beliefs.unary(variable)[1] for variable in (0, 1)]
    axis.barh(np.arange(2) + offset, chances, 0.4, label=name)
axis.set_yticks([0, 1], ["burglary", "earthquake"])
axis.set(xlabel="probability")
axis.legend(frameon=False)
plt.show()
