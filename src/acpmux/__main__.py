"""The `acpmux` command."""


def main() -> None:
    from acpmux.cli.app import run

    run()


if __name__ == "__main__":
    main()
