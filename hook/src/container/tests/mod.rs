mod root;
