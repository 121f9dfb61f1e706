"""Order of the examples in the gallery: models, ways to learn them, inference, files and scale."""

ORDER = (
    *("denoise_grid", "chunking", "names_in_documents", "label_graph", "strokes", "superpixels"),
    *("plot_network", "contacts", "matching", "mixture"),
    *("report", "penalty", "camel", "hidden_units", "fit_marginals", "margins"),
    *("plot_denoise", "plot_bounds", "regions", "best_labelling", "parity_code", "uai_file"),
    *("many_graphs", "larger_than_memory"),
)


class GalleryOrder:
    """A sort key of file names, as sphinx-gallery asks for; new examples come last."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, filename):
        name = filename.removesuffix(".py")
        return (ORDER.index(name) if name in ORDER else len(ORDER), name)
