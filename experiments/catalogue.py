"""The list of experiments.  Nothing is imported here, so that it can be shown at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["EXPERIMENTS", "Experiment"]


@dataclass(frozen=True)
class Experiment:
    """An entry of the list; ``plan`` names a module and a `Plan` in it, ``module:class``."""

    name: str
    summary: str
    paper: str
    plan: str
    needs_data: bool = False

    @property
    def folder(self) -> Path:
        """Where the files of the experiment are."""
        module = self.plan.partition(":")[0]
        return Path(__file__).parent.parent.joinpath(*module.split(".")[:-1])


WAINWRIGHT = (
    "M. J. Wainwright, \"Estimating the 'wrong' Markov random field: benefits in the "
    'computation-limited setting", Advances in Neural Information Processing Systems 18, 2005'
)
GANAPATHI = (
    'V. Ganapathi, D. Vickrey, J. Duchi and D. Koller, "Constrained approximate maximum entropy '
    'learning of Markov random fields", Uncertainty in Artificial Intelligence, 2008'
)
WELLING = (
    'M. Welling and C. Sutton, "Learning in Markov random fields with contrastive free energies", '
    "Artificial Intelligence and Statistics, 2005"
)
TANG = (
    'K. Tang, N. Ruozzi, D. Belanger and T. Jebara, "Bethe learning of graphical models via MAP '
    'decoding", Artificial Intelligence and Statistics, 2016'
)
DOMKE = (
    'J. Domke, "Tractable learning and inference in high-treewidth graphical models", doctoral '
    "thesis, University of Maryland, 2009"
)

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "wainwright-fig3",
            "learn and predict with independent, BP and TRW fields on an 8x8 grid",
            f"{WAINWRIGHT}, figure 3",
            "experiments.wainwright2005.run:Figure3",
        ),
        Experiment(
            "camel-ner",
            "names in CoNLL-2003 articles: five ways to learn a skip-chain",
            f"{GANAPATHI}, table 1",
            "experiments.ganapathi2008.ner.run:Names",
            needs_data=True,
        ),
        Experiment(
            "camel-seminars",
            "extract times, places and speakers from mails by CAMEL and four other methods",
            f"{GANAPATHI}, table 2",
            "experiments.ganapathi2008.seminars.run:Fields",
            needs_data=True,
        ),
        Experiment(
            "camel-segmentation",
            "label the superpixels of Corel photographs by CAMEL and four other methods",
            f"{GANAPATHI}, table 3",
            "experiments.ganapathi2008.segmentation.run:Superpixels",
            needs_data=True,
        ),
        Experiment(
            "camel-diagnosis",
            "follow rounds of CAMEL on superpixels, and what their order of methods depends on",
            f"{GANAPATHI}, behind table 3",
            "experiments.ganapathi2008.diagnosis.run:Diagnosis",
            needs_data=True,
        ),
        Experiment(
            "contrastive-seminars",
            "find speakers in mails by contrastive free energies and by likelihood",
            f"{WELLING}, table 1",
            "experiments.welling_sutton2005.seminars.run:Speakers",
            needs_data=True,
        ),
        Experiment(
            "contrastive-speed",
            "F1 against processor time: contrastive free energies and propagation, stopped alike",
            f"{WELLING}, section 7 (training times)",
            "experiments.welling_sutton2005.speed.run:Speed",
            needs_data=True,
        ),
        Experiment(
            "contrastive-hidden",
            "hidden units over digits, by contrastive free energies, chains and exactly",
            f"{WELLING}, sections 2 to 4 (no experiment of the paper has hidden variables)",
            "experiments.welling_sutton2005.hidden.run:HiddenUnits",
        ),
        Experiment(
            "mle-struct-house-hotel",
            "match landmarks of two views by weights learned through best matchings",
            f"{TANG}, section on graph matching",
            "experiments.tang2016.house_hotel.run:HouseHotel",
            needs_data=True,
        ),
        Experiment(
            "mle-struct-synthetic",
            "likelihood of Bethe, reweighted and exact estimates of random matchings",
            f"{TANG}, synthetic experiment",
            "experiments.tang2016.synthetic.run:RandomMatchings",
        ),
        Experiment(
            "mle-struct-segmentation",
            "cut horses out of photographs: MLE-Struct against double loops, over time",
            f"{TANG}, the segmentation experiment",
            "experiments.tang2016.segmentation.run:Segmentation",
            needs_data=True,
        ),
        Experiment(
            "mle-struct-roommates",
            "who shares a room, with hidden preferences; speed dating as b-matchings",
            f"{TANG}, the room-mate experiment (its data are not public; drawn rooms and speed "
            "dating stand in)",
            "experiments.tang2016.roommates.run:RoomMates",
            needs_data=True,
        ),
        Experiment(
            "domke-chains",
            "losses on exact chains, whose model is right, nearly right or wrong",
            f"{DOMKE}, section 3.7",
            "experiments.domke2009.chains.run:Chains",
        ),
        Experiment(
            "domke-digits",
            "digits under noise: likelihoods, implicit and procedural fitting",
            f"{DOMKE}, tables 1.1 and 6.1",
            "experiments.domke2009.digits.run:NoisyDigits",
            needs_data=True,
        ),
        Experiment(
            "domke-entropy",
            "digits by implicit fitting, with entropies that are given or fitted",
            f"{DOMKE}, section 6.3",
            "experiments.domke2009.entropy.run:Entropies",
            needs_data=True,
        ),
        Experiment(
            "domke-iterations",
            "digits by procedural fitting, tested with other numbers of iterations",
            f"{DOMKE}, section 6.4",
            "experiments.domke2009.iterations.run:Iterations",
            needs_data=True,
        ),
        Experiment(
            "domke-scenes",
            "street scenes with missing labels, by implicit and procedural fitting",
            f"{DOMKE}, table 6.3 (CamVid stands in for StreetScenes)",
            "experiments.domke2009.scenes.run:StreetScenes",
            needs_data=True,
        ),
    )
}
