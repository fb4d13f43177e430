from tidegate_dispatcher.main import main

main()
