"""The matplotlib back end of a ``%%gpu`` cell: ``plt.show()`` shows the open figures."""

from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas  # noqa: F401

from trimul.gpu.mime import display


def show(*args, **kwargs) -> None:
    """Show every open figure, in the order in which they were made, and close it."""
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        pyplot.close(figure)
        display(figure)
