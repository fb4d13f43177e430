from tidegate_ingest.main import main

main()
