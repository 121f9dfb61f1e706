"""Draw the decision trees of the page "Which method when".

``python docs/_extensions/decision_trees.py`` writes them to ``docs/images``.
"""

from html import escape
from pathlib import Path

#: What the data are, an example, and the estimator.
MODELS = (
    ("a label for every token of a sequence", "tags, chunks, phonemes", "ChainCRF"),
    ("… where distant tokens belong together", "the same name twice in a text", "SkipChainCRF"),
    ("a label for every pixel", "masks, restored pictures", "GridCRF"),
    ("a label for every node of any graphs", "superpixels, people, parcels", "GraphCRF"),
    ("rows of yes/no answers", "symptoms, species, spins", "IsingModel"),
    ("rows of categories", "aligned sequences, scales 1..5", "PottsModel"),
    ("who goes with whom", "points of two pictures, room-mates", "MatchingCRF"),
    ("noisy measurements of a latent field", "signals, sensors", "MixtureField"),
    ("a model that is given", "UAI files, codes, energies", "infer, decode"),
)
#: Questions in their order, what to take if the answer is yes, and why.
QUESTIONS = (
    ("Is it a chain, a tree, or small?", "likelihood", "exact"),
    ("Does only the best labelling count?", "max-margin", "no probabilities"),
    ("Matchings, or just a MAP solver at hand?", "mle-struct", "with a certified gap"),
    ("Hidden variables?", "cf-bethe, cd", "a few steps from the data"),
    ("Samples of one large network?", "pseudolikelihood", "no inference, consistent"),
    ("Are a few sweeps all that prediction can afford?", "procedural", "learned for those sweeps"),
    ("Linked text, or did “bethe” not converge?", "camel0", "one concave problem"),
)
INK, LINE, QUESTION, ANSWER, DEFAULT = "#1f2a37", "#5b6b7c", "#eef2f7", "#d8ebe6", "#0a7d91"


def box(x, y, width, height, fill, ink, *lines):
    """A rounded box with lines of text, of which the first is bold if there are two."""
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}" '
        f'stroke="{LINE}" stroke-width="1"/>'
    ]
    for k, line in enumerate(lines):
        weight = "bold" if len(lines) == 2 and k == 0 else "normal"
        size = 14 if k == 0 else 12
        at = y + height / 2 + (5 if len(lines) == 1 else (-3 if k == 0 else 14))
        parts.append(
            f'<text x="{x + width / 2}" y="{at}" text-anchor="middle" font-size="{size}" '
            f'font-weight="{weight}" fill="{ink}">{escape(line)}</text>'
        )
    return parts


def arrow(x1, y1, x2, y2, label=""):
    """A line with a head, and a word beside it."""
    parts = [
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{LINE}" stroke-width="1.5" '
        'marker-end="url(#head)"/>'
    ]
    if label:
        x, y = ((x1 + x2) / 2, y1 - 6) if y1 == y2 else (x1 + 14, (y1 + y2) / 2 + 3)
        parts.append(
            f'<text x="{x}" y="{y}" text-anchor="middle" font-size="12" fill="{LINE}">'
            f"{label}</text>"
        )
    return parts


def picture(width, height, title, parts):
    """The text of an SVG file."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="system-ui, sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="12" fill="#ffffff"/>',
        *parts,
        "</svg>\n",
    ])  # fmt: skip


def model_tree():
    """From data to an estimator."""
    step, top = 52, 24
    height = top * 2 + step * len(MODELS) - 8
    middle = height / 2
    parts = box(20, middle - 32, 150, 64, DEFAULT, "#ffffff", "What are", "your data?")
    for k, (data, such_as, model) in enumerate(MODELS):
        y = top + step * k
        parts += [
            f'<path d="M170 {middle} C200 {middle} 190 {y + 22} 218 {y + 22}" fill="none" '
            f'stroke="{LINE}" stroke-width="1.5"/>'
        ]
        parts += box(220, y, 340, 44, QUESTION, INK, data, such_as)
        parts += arrow(560, y + 22, 588, y + 22)
        parts += box(592, y, 148, 44, ANSWER, INK, model)
    return picture(760, height, "Which model for which data", parts)


def method_tree():
    """From questions to an objective."""
    step, top = 70, 20
    parts = []
    for k, (question, objective, why) in enumerate(QUESTIONS):
        y = top + step * k
        parts += box(20, y, 370, 44, QUESTION, INK, question)
        parts += arrow(390, y + 22, 456, y + 22, "yes")
        parts += box(460, y, 280, 44, ANSWER, INK, objective, why)
        parts += arrow(205, y + 44, 205, y + step - 3, "no")
    y = top + step * len(QUESTIONS)
    best = ("trw", "convex, stable; the default on grids and graphs")
    parts += box(20, y, 370, 50, DEFAULT, "#ffffff", *best)
    parts += box(460, y, 280, 50, ANSWER, INK, "bethe", "if couplings are weak")
    parts += arrow(390, y + 25, 456, y + 25, "or")
    return picture(760, y + 74, "Which objective when", parts)


PICTURES = {"which-model.svg": model_tree, "which-method.svg": method_tree}

if __name__ == "__main__":
    folder = Path(__file__).resolve().parents[1] / "images"
    for name, draw in PICTURES.items():
        (folder / name).write_text(draw())
