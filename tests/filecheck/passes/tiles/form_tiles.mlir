// RUN: xdsl-opt %s -p 'pebble-form-tiles{widths=8,32}' --split-input-file | filecheck %s

// Layers, a residual sum and a constant with one entry a feature, which gets rank 1.
// CHECK-LABEL: @residual
func.func @residual(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %c = pebble.constant {pebble.values = ["c"]} dense<[[3.0, 4.0]]> : tensor<1x2xf32>
  // CHECK-NEXT: %w = pebble.constant
  // CHECK-NEXT: [[C:%.*]] = pebble.constant {pebble.values = ["c"]} dense<[3.000000e+00, 4.000000e+00]> : tensor<2xf32>
  // CHECK-NEXT: [[Y:%.*]] = pebble.tile %x rows_of [0] schedule <widths = [8, 32]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  // CHECK-NEXT: ^{{.*}}([[X:%.*]]: tensor<?x2xf32>):
  // CHECK-NEXT: [[H:%.*]] = pebble.linear [[X]], %w activation <relu> kernel <dense_outputs, "why"> {pebble.node = "fc"}
  %h = pebble.linear %x, %w activation <relu> kernel <dense_outputs, "why"> {pebble.node = "fc"} : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: [[S:%.*]] = pebble.add [[H]], [[X]]
  %s = pebble.add %h, %x : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: [[P:%.*]] = pebble.mul [[S]], [[C]]
  %y = pebble.mul %s, %c : (tensor<?x2xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: pebble.yield [[P]]
  // CHECK-NEXT: }
  // CHECK-NEXT: func.return [[Y]]
  func.return %y : tensor<?x2xf32>
}

// -----

// A transpose between layers: two tiles. What does not depend on it joins the first.
// CHECK-LABEL: @transpose
func.func @transpose(%x: tensor<3x4x2xf32>) -> (tensor<4x3x2xf32>, tensor<3x4x2xf32>) {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: pebble.tile %x rows_of [0, 0]
  // CHECK: pebble.linear
  %h = pebble.linear %x, %w : (tensor<3x4x2xf32>, tensor<2x2xf32>) -> tensor<3x4x2xf32>
  %t = pebble.transpose %h axes [1, 0, 2] : (tensor<3x4x2xf32>) -> tensor<4x3x2xf32>
  %y = pebble.softmax %t : (tensor<4x3x2xf32>) -> tensor<4x3x2xf32>
  // CHECK-NEXT: pebble.activate <relu>
  // CHECK-NEXT: pebble.yield
  // CHECK: pebble.transpose
  // CHECK: pebble.tile
  // CHECK: pebble.softmax
  %z = pebble.activate <relu> %x : (tensor<3x4x2xf32>) -> tensor<3x4x2xf32>
  func.return %y, %z : tensor<4x3x2xf32>, tensor<3x4x2xf32>
}

// -----

// A reshape of the rows is nothing inside a tile; at its edge it stays outside, where it costs nothing.
// CHECK-LABEL: @rows_in_other_axes
func.func @rows_in_other_axes(%x: tensor<?x3x2xf32> {pebble.name = "x", pebble.dims = ["batch", "3", "2"]}) -> tensor<?x3x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: [[Y:%.*]] = pebble.tile %x rows_of [0] {{.*}} : (tensor<?x3x2xf32>) -> tensor<?x3x2xf32>
  %f = pebble.reshape %x to <[_, 2]> : (tensor<?x3x2xf32>) -> tensor<?x2xf32>
  // CHECK: [[H:%.*]] = pebble.linear
  %h = pebble.linear %f, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %g = pebble.reshape %h to <[_, 3, 2]> : (tensor<?x2xf32>) -> tensor<?x3x2xf32>
  // CHECK-NEXT: pebble.add [[H]], {{.*}} : (tensor<?x2xf32>, tensor<?x2xf32>)
  %y = pebble.add %g, %x : (tensor<?x3x2xf32>, tensor<?x3x2xf32>) -> tensor<?x3x2xf32>
  func.return %y : tensor<?x3x2xf32>
}

// -----

// A constant that differs between rows, and a vector that meets a matrix, are no features: both sums stay outside.
// CHECK-LABEL: @broadcast
func.func @broadcast(%x: tensor<?x2x2xf32>, %v: tensor<2xf32>) -> (tensor<?x2x2xf32>, tensor<?x2x2xf32>) {
  %p = pebble.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  // CHECK: pebble.add %x, %p
  %y = pebble.add %x, %p : (tensor<?x2x2xf32>, tensor<2x2xf32>) -> tensor<?x2x2xf32>
  // CHECK-NEXT: pebble.add %x, %v
  %z = pebble.add %x, %v : (tensor<?x2x2xf32>, tensor<2xf32>) -> tensor<?x2x2xf32>
  // CHECK-NEXT: func.return
  func.return %y, %z : tensor<?x2x2xf32>, tensor<?x2x2xf32>
}

// -----

// Features are concatenated and split inside a tile, on its axis 1.
// CHECK-LABEL: @features
func.func @features(%x: tensor<?x5x2xf32>) -> (tensor<?x5x1xf32>, tensor<?x5x3xf32>) {
  %h = pebble.activate <relu> %x : (tensor<?x5x2xf32>) -> tensor<?x5x2xf32>
  // CHECK: pebble.concat {{.*}} axis 1 : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x4xf32>
  %c = pebble.concat %h, %x axis 2 : (tensor<?x5x2xf32>, tensor<?x5x2xf32>) -> tensor<?x5x4xf32>
  // CHECK-NEXT: pebble.split {{.*}} axis 1 : (tensor<?x4xf32>) -> (tensor<?x1xf32>, tensor<?x3xf32>)
  %a, %b = pebble.split %c axis 2 : (tensor<?x5x4xf32>) -> (tensor<?x5x1xf32>, tensor<?x5x3xf32>)
  func.return %a, %b : tensor<?x5x1xf32>, tensor<?x5x3xf32>
}

// -----

// A step of a loop is a tile, of rows and states.
// CHECK-LABEL: @loop
func.func @loop(%x: tensor<?x?x2xf32>) -> tensor<?x?x2xf32> {
  // CHECK: pebble.scan %x : tensor<?x?x2xf32>
  // CHECK-NEXT: ^bb0([[STEP:%.*]]: tensor<?x2xf32>, [[BEFORE:%.*]]: tensor<?x2xf32>):
  // CHECK-NEXT:   [[AFTER:%.*]] = pebble.tile [[STEP]], [[BEFORE]] rows_of [0]
  // CHECK: pebble.yield [[AFTER]] : tensor<?x2xf32>
  %y, %h = pebble.scan %x : tensor<?x?x2xf32> -> (tensor<?x?x2xf32>, tensor<?x2xf32>) {
  ^bb0(%step: tensor<?x2xf32>, %before: tensor<?x2xf32>):
    %after = pebble.add %step, %before : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
    pebble.yield %after : tensor<?x2xf32>
  }
  func.return %y : tensor<?x?x2xf32>
}
