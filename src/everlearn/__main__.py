from everlearn.cli import main

main()
