mod random_trees;
mod root;
