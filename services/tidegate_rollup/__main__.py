from tidegate_rollup.main import main

main()
