mod build;
mod compiled;
mod damage;
mod images;
mod lines;
