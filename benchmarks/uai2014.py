"""The UAI 2014 models with their reference answers, through ``fieldfit infer --method auto``.

FIELDFIT_DATA=folder python -m benchmarks.uai2014 [--write docs/uai2014.md]

References are printed with six significant digits, so a difference in log10 Z of up to half a unit
of their last digit says nothing; marginals are printed to 5e-7.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import fieldfit as ff
from fieldfit.cli.main import main as command


def half_unit(text: str) -> float:
    """Half a unit of the last digit of a printed number."""
    decimals = len(text.split(".")[1]) if "." in text else 0
    return 0.5 * 10.0**-decimals


def answer(model: Path) -> dict[str, object]:
    """What the command prints for one model, as an object."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        status = command(["infer", str(model), "--task", "MAR", "--json", "--quiet"])
    if status != 0:
        raise RuntimeError(f"fieldfit infer {model.name} ended with status {status}")
    return json.loads(output.getvalue())


def row(model: Path) -> tuple[str, bool]:
    start = time.process_time()
    given = answer(model)
    seconds = time.process_time() - start
    printed = Path(f"{model}.PR").read_text().split()[1]
    reference = ff.io.read_answer(f"{model}.MAR")
    gap = abs(given["log10_partition"] - float(printed))
    ours = np.concatenate([np.asarray(table) for table in given["marginals"]])
    theirs = np.concatenate(reference.marginals)
    marginal_gap = float(np.abs(ours - theirs).max())
    fine = given["bound"] == "exact" and gap <= 1e-4 + half_unit(printed) and marginal_gap <= 1e-4
    graph, _ = ff.read_uai(model)
    text = (
        f"| {model.stem} | {graph.n_variables} | {graph.n_factors} | {given['bound']} | "
        f"{(given['memory'] or 0) / 1e6:.1f} | {seconds:.2f} | {gap:.1e} | "
        f"{half_unit(printed):.0e} | {marginal_gap:.1e} |"
    )
    return text, fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if "FIELDFIT_DATA" not in os.environ:
        print("FIELDFIT_DATA must name the folder of the data sets", file=sys.stderr)
        return 2
    models = sorted((Path(os.environ["FIELDFIT_DATA"]) / "uai2014" / "mar_pr").glob("*.uai"))
    lines = [
        "# UAI 2014 models",
        "",
        "Written by `python -m benchmarks.uai2014 --write docs/uai2014.md` on "
        f"{time.strftime('%Y-%m-%d')}: every model through `fieldfit infer --method auto`.",
        "",
        *(__doc__ or "").strip().splitlines()[-2:],
        "",
        "| model | variables | factors | bound | memory MB | CPU s | log10 Z off by | "
        "half a unit | marginals off by |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    n_fine = 0
    for model in models:
        text, fine = row(model)
        n_fine += fine
        lines.append(text)
        print(text, flush=True)
    lines += ["", f"{n_fine} of {len(models)} exact and equal to the reference as far as it goes."]
    print(lines[-1])
    if options.write:
        options.write.write_text("\n".join(lines) + "\n")
    return 0 if n_fine == len(models) else 1


if __name__ == "__main__":
    raise SystemExit(main())
