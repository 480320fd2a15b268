from everlearn.cli.app import main

main()
