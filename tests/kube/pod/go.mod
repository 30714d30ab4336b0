module pod

go 1.26.0
