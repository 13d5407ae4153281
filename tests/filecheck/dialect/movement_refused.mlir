// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: target [d2, _] copies an axis that input ?x4 does not have
  %y = pebble.reshape %x to <[d2, _]> : (tensor<?x4xf32>) -> tensor<?x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: input ?x4 does not fit target [d0, 3]
  %y = pebble.reshape %x to <[d0, 3]> : (tensor<?x4xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x4xf32>) {
  // CHECK: input 2x4 does not fit target [3, _]
  %y = pebble.reshape %x to <[3, _]> : (tensor<2x4xf32>) -> tensor<3x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: result ?x4, expected ?x2x2
  %y = pebble.reshape %x to <[d0, 2, 2]> : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: axes [0, 2], expected a permutation of 0 to 1
  %y = pebble.transpose %x axes [0, 2] : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: result ?x4, expected 4x?
  %y = pebble.transpose %x axes [1, 0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: no operands, expected one or more
  %y = "pebble.concat"() <{axis = 0 : i64}> : () -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: axis 2, expected 0 to 1
  %y = pebble.concat %x, %x axis 2 : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %z: tensor<4xf32>) {
  // CHECK: operands ?x4 and 4 differ in rank
  %y = pebble.concat %x, %z axis 0 : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %z: tensor<?x3xf32>) {
  // CHECK: operands ?x4 and ?x3 differ off the axis
  %y = pebble.concat %x, %z axis 0 : (tensor<?x4xf32>, tensor<?x3xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: result ?x7, expected ?x8
  %y = pebble.concat %x, %x axis 1 : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x7xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: no results, expected one or more
  "pebble.split"(%x) <{axis = 1 : i64}> : (tensor<?x4xf32>) -> ()
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: a part of unknown size along axis 0
  %a, %b = pebble.split %x axis 0 : (tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: parts make ?x5, expected ?x4
  %a, %b = pebble.split %x axis 1 : (tensor<?x4xf32>) -> (tensor<?x2xf32>, tensor<?x3xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: axis 2, expected 0 to 1
  %a = pebble.take %x axis 2 at 0 : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: place -5 of axis 1 of ?x4, expected -4 to 3
  %a = pebble.take %x axis 1 at -5 : (tensor<?x4xf32>) -> tensor<?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: result 5, expected 4
  %a = pebble.take %x axis 0 at 0 : (tensor<?x4xf32>) -> tensor<5xf32>
  func.return
}
