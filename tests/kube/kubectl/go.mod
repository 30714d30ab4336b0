// The root of the module, which go wants to see; what each minor requires is in its own file beside, such as 1.35.mod.
module tombolo/tests/kube/kubectl

go 1.26.0
