from io import BytesIO

from IPython.core.formatters import DisplayFormatter
from matplotlib.image import imread

from botorch_res.plotting.figure import new_figure


def test_a_notebook_shows_a_figure_without_pyplot() -> None:
    figure = new_figure(2.0, 1.5)
    # A formatter of its own knows nothing of what pyplot may have told IPython's.
    data, metadata = DisplayFormatter().format(figure)
    picture = imread(BytesIO(data["image/png"]))
    assert picture.shape[:2] == (240, 320)
    assert metadata["image/png"] == {"width": 200}
