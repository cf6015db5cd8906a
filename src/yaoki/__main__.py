"""python -m yaoki."""

from yaoki.cli.main import main

if __name__ == "__main__":
    main()
