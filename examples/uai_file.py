"""Read a model file, answer it, and write the answers (`fieldfit infer` does the same).

python examples/uai_file.py [MODEL.uai]
"""

import sys
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


def main(path=None):
    with tempfile.TemporaryDirectory() as folder:
        observed = {}
        if path is None:
            path = Path(folder, "alarm.uai")
            path.write_text(ALARM)
            observed = {2: 1}  # the alarm rings
        graph, potentials = ff.read_uai(path)
        print(graph)

        result = ff.infer(graph, potentials, observed=observed)  # exact if it fits in memory
        print(result.status)
        print(f"log10 of the weight: {result.log_partition / np.log(10):.4f} ({result.bound})")
        for variable in range(min(graph.n_variables, 5)):
            print(f"variable {variable}: {result.beliefs.unary(variable).round(4)}")

        best = ff.decode(graph, potentials, observed=observed)
        print(f"best labelling: {best.labels[:20]}, optimal: {best.optimal}")

        answer = Path(folder, "answer.MAR")
        ff.io.write_answer(answer, MarginalAnswer.from_beliefs(result.beliefs))
        print(f"answer file: {len(answer.read_text().split())} tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
