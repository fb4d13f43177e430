from tidegate.cli.app import main

main()
