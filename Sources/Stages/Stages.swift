// Stages
