from tidegate_mapper.main import main

main()
