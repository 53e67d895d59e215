"""What a figure shows, read back from it."""


def words(axes) -> list[str]:
    """The texts written into an axes, in the order in which they were drawn."""
    return [text.get_text() for text in axes.texts]
