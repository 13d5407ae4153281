"""What docstrings of the sources hold to, beside tests/test_architecture.py."""

import ast
import re
from collections.abc import Iterator

from tests.test_architecture import FILES, name_of, tree_of

HOOKS = {"verify", "verify_", "apply", "meet"}
"""Methods of a base class, which says what they raise: `VerifyException`, `PassFailedException`, a mismatch."""

EXITS = ("typer.", "SystemExit")
"""Prefixes of what ends a command with its exit code, and is no error of a function."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_functions(body: list[ast.stmt]) -> Iterator[Function]:
    """The functions of a module, without commands, whose docstring is their help, and the methods of its classes."""
    for node in body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            if isinstance(node, ast.ClassDef):
                yield from public_functions(node.body)
            elif not any(ast.unparse(one).startswith("app.") for one in node.decorator_list):
                yield node


def raised_by(node: ast.AST) -> Iterator[str]:
    """The errors that a function makes and raises itself, functions inside it left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise) and child.exc is not None:
            yield ast.unparse(child.exc)
        if not isinstance(child, Function | ast.ClassDef | ast.Lambda):
            yield from raised_by(child)


def test_a_public_function_names_the_errors_that_it_raises() -> None:
    assert not [
        f"{name_of(file)}:{function.lineno} {function.name}"
        for file in FILES
        for function in public_functions(tree_of(file).body)
        if function.name not in HOOKS
        and not any(ast.unparse(one).startswith("app.command") for one in function.decorator_list)  # shown as help
        and any(not error.startswith(EXITS) for error in raised_by(function))
        and "Raises:" not in (ast.get_docstring(function) or "")
    ]


def test_a_docstring_of_the_sources_begins_with_no_question_word() -> None:
    question = re.compile(r"^(?:What|Where|When|Why|Which|How|From)\b")
    assert not [
        f"{name_of(file)}:{node.lineno}"
        for file in FILES
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if question.search(node.value.value)
    ]
