"""What layouts are made of: menus of splits, stages, shardings and recomputations, and layers dealt
to stages by their times.
"""
