"""`completion`: the script a shell wants."""

import click
from click.shell_completion import get_completion_class

from acpmux.cli.output import json_option, print_json


@click.command(
    "completion",
    epilog='Examples:\n\n\b\n  eval "$(acpmux completion bash)"\n'
    "  acpmux completion fish > ~/.config/fish/completions/acpmux.fish",
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@json_option
def completion_command(shell: str, as_json: bool) -> None:
    """Print the completion script for a shell."""
    from acpmux.cli.app import cli

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, "acpmux", "_ACPMUX_COMPLETE").source()
    print_json({"shell": shell, "script": script}) if as_json else click.echo(script)
