from tidegate.cli.entry import main

main()
