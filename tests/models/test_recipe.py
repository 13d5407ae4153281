import pytest

from redpebble.models import zoo
from redpebble.models.recipe import parse_spec


def test_a_bare_name_takes_every_default() -> None:
    assert parse_spec(" digits ") == ("digits", {})


def test_parameters_are_literals_and_lists_become_tuples() -> None:
    assert parse_spec("ffnn(depth=2, density=1e-1, skip=True)").parameters == {"depth": 2, "density": 0.1, "skip": True}
    assert parse_spec("compact(widths=[4, 5])").parameters == {"widths": (4, 5)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "a-b",
        "a.b()",
        "ffnn(4)",
        "ffnn(**{'depth': 4})",
        "ffnn(depth=width)",
        "ffnn(depth=f())",
        "ffnn(depth=1, depth=2)",
        "a\0",
    ],
)
def test_anything_but_a_name_with_literal_parameters_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a model as name or name\(parameter=value, \.\.\.\)"):
        parse_spec(text)


REFUSALS = {
    "nothing": "model of the zoo: expected one of bert_ffn, ",
    "ffnn(dept=4)": "ffnn: expected depth=4, width=500, density=0.1, skip=False, got parameter 'dept'",
    "digits(width=4)": "digits: expected no parameter, got parameter 'width'",
    "ffnn(depth=4.5)": "ffnn: depth: expected a whole number, got 4.5",
    "ffnn(depth=True)": "ffnn: depth: expected a whole number, got True",
    "ffnn(skip=1)": "ffnn: skip: expected True or False, got 1",
    "ffnn(density='a')": "ffnn: density: expected a number, got 'a'",
    "ffnn(depth=0)": "ffnn: depth: expected 1 or more, got 0",
    "masked_mlp(density=0)": "masked_mlp: density: expected above 0, at most 1, got 0",
    "bert_layer(density=1.5)": "bert_layer: density: expected above 0, at most 1, got 1.5",
    "radixnet(neurons=1000)": "radixnet: neurons: expected 1024, 4096, 16384, 65536, got 1000",
    "ffnn(depth=[4])": "ffnn: depth: expected a whole number, got (4,)",
    "structured(pattern='3:5')": "structured: pattern: expected 2:4, 1:4, nmg, vnm, ",
    "structured(width=20)": "structured: width: expected multiples of 16, got 20",
    "structured(density=0.5)": "structured: density: expected None, as pattern 2:4 has its own, got 0.5",
    "structured(density=[1])": "structured: density: expected a number or None, got (1,)",
    "minilm(sparsity=1.0)": "minilm: sparsity: expected 0 or more, below 1, got 1.0",
}


@pytest.mark.parametrize("spec", REFUSALS)
def test_a_refusal_is_one_line_that_says_what_is_accepted(spec: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        zoo.build(spec)
    assert str(caught.value).startswith(REFUSALS[spec])
    assert "\n" not in str(caught.value)


def test_the_list_names_every_recipe_with_summary_and_defaults() -> None:
    recipes = zoo.list_recipes()
    assert [recipe.name for recipe in recipes] == list(zoo.RECIPES)
    assert all(recipe.summary.endswith(".") for recipe in recipes)
    described = {recipe.name: str(recipe) for recipe in recipes}
    assert described["ffnn"] == "ffnn(depth=4, width=500, density=0.1, skip=False)"
    assert described["digits"] == "digits"
    assert all(parse_spec(spec).name == name for name, spec in described.items())
