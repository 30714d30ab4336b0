module second-parser

go 1.26.0
