"""`python -m validation`: rebuilds validation/REPORT.md (see validation.fit)."""

from validation.fit import main

if __name__ == "__main__":
    main()
