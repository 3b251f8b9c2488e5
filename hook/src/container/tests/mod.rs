mod resolve;
mod root;
