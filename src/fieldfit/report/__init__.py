"""Pages about a fit: one HTML file that needs no network.

`page_parts`, `charts`, `heat_maps` and `network_drawing` are the parts of any page (the
demonstration is made of them too); each kind of model has a file in `kinds` that says what its
report shows.
"""
