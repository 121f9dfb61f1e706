"""Which method for my data: several objectives, trained and scored on the same examples.

`compare` cuts the data (`compare_methods`), gives every objective its share of the time and a
search for its penalty (`method_candidates`, `method_search`), scores all of them on the same
held-out examples (`held_out_scores`), and returns a `Comparison` with a table, a recommendation and
a page (`comparison_result`, `comparison_page`).
"""

from fieldfit._registry import exports

__all__, __getattr__, __dir__ = exports(__name__)
