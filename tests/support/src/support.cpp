namespace hvd::test {}
