mod random_trees;
mod resolve;
mod root;
